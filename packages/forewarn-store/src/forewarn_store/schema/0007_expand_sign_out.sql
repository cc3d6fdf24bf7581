-- Sessions that have ended before their token expires (P-5). An empty digest is a restore: tokens
-- issued before it are refused (U-5).
CREATE TABLE sign_out (
    -- SHA-256 of the issuer's token, in hexadecimal.
    digest TEXT PRIMARY KEY,
    -- When the token expires; of a restore, its time.
    at_ms BIGINT NOT NULL
);
