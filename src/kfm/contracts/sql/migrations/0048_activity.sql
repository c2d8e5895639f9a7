-- expand: indexes, which earlier processes keep without knowing of them.
-- What was asked for, by time: the list of all triggers begins anywhere, and reads what it shows.
CREATE INDEX invocations_by_time ON invocations (requested_at_ms, number);
-- What people refer to by a ticket, which a search begins with; most rows have none.
CREATE INDEX invocations_by_ticket ON invocations (ticket, number) WHERE ticket IS NOT NULL;
CREATE INDEX governance_by_ticket ON governance (ticket, number) WHERE ticket IS NOT NULL;
