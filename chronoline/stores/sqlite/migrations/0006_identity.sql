-- Tells stores apart; see "One store" in docs/design/cluster.md. A copy of the file has the identity of its origin.
CREATE TABLE identity (id TEXT NOT NULL) STRICT;
INSERT INTO identity VALUES (lower(hex(randomblob(16))));
