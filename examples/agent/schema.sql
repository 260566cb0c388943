-- For SQLite and PostgreSQL. One row for each election: the highest term that has written here.
CREATE TABLE IF NOT EXISTS leadership (election TEXT PRIMARY KEY, term BIGINT NOT NULL);
INSERT INTO leadership VALUES ('report', 0) ON CONFLICT DO NOTHING;

-- What only the leader may write.
CREATE TABLE IF NOT EXISTS reports (number INTEGER PRIMARY KEY, term BIGINT NOT NULL);
