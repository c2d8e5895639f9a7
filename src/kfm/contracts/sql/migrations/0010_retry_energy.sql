-- What a failed try of a call cost, where that was metered.
ALTER TABLE retries ADD COLUMN energy TEXT;
