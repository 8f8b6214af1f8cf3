-- Names and operators in the function are those of PostgreSQL, whatever its caller's search_path finds first.
ALTER FUNCTION chronoline.send(text, text, bigint, bytea, bigint, text, bytea, jsonb, bigint)
    SET search_path = pg_catalog, pg_temp;
