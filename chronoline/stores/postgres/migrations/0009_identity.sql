-- Tells stores apart; see "One store" in docs/design/cluster.md. A restored dump has the identity of its origin.
CREATE TABLE chronoline.identity (id text COLLATE "C" NOT NULL);
INSERT INTO chronoline.identity VALUES (gen_random_uuid()::text);
