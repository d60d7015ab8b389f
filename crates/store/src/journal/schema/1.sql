-- The node that may write here. One row; frozen for all releases.
CREATE TABLE fence (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    checkout TEXT    NOT NULL,
    -- An unsigned number of 64 bits, its bits as they are.
    epoch    INTEGER NOT NULL,
    -- Whether the node of that epoch ended in order.
    drained  INTEGER NOT NULL
) STRICT;

-- Who commanded something. `n` is the floor: commands up to it are not run again.
CREATE TABLE floor (
    seat BLOB    PRIMARY KEY,
    n    INTEGER NOT NULL,
    -- Rises with every command of any seat; the lowest is forgotten first.
    used INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX floor_by_use ON floor (used);

-- The commands above their seat's floor. Without a result: begun, outcome unknown.
CREATE TABLE done (
    seat   BLOB    NOT NULL REFERENCES floor (seat) ON DELETE CASCADE,
    n      INTEGER NOT NULL,
    digest BLOB    NOT NULL,
    result BLOB,
    PRIMARY KEY (seat, n)
) STRICT;

-- The rows of the board, each as one JSON record.
CREATE TABLE peer (
    id      INTEGER PRIMARY KEY,
    record  TEXT    NOT NULL,
    -- The execution session that the peer is bound to.
    session TEXT
) STRICT;

-- The wire sessions of direct clients, each as one JSON record.
CREATE TABLE wire_session (
    id     TEXT PRIMARY KEY,
    record TEXT NOT NULL
) STRICT;
