ALTER TABLE governance RENAME TO governance_unchained;

DROP INDEX governance_by_subject;

CREATE TABLE governance (
  number         BIGINT NOT NULL PRIMARY KEY,
  kind           TEXT NOT NULL,
  subject        TEXT NOT NULL,
  actor          TEXT NOT NULL,
  recorded_at_ms BIGINT NOT NULL,
  rationale      TEXT,
  ticket         TEXT,
  details        TEXT NOT NULL,
  hash           TEXT NOT NULL
);

INSERT INTO governance (number, kind, subject, actor, recorded_at_ms, rationale, ticket, details, hash)
SELECT ROW_NUMBER() OVER (ORDER BY number), kind, subject, actor, recorded_at_ms, rationale, ticket, details, ''
FROM governance_unchained;

DROP TABLE governance_unchained;

CREATE INDEX governance_by_subject ON governance (subject);

CREATE TABLE chain_heads (
  name   TEXT NOT NULL PRIMARY KEY,
  number BIGINT NOT NULL,
  hash   TEXT NOT NULL
);

INSERT INTO chain_heads (name, number, hash)
VALUES ('governance', 0, '0000000000000000000000000000000000000000000000000000000000000000');
