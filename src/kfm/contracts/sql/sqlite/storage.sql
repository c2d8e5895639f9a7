-- name: storage.tables
-- Bytes of each table with its indexes.
SELECT m.tbl_name, SUM(s.pgsize) FROM dbstat s CROSS JOIN sqlite_schema m
WHERE s.aggregate = TRUE AND m.name = s.name GROUP BY m.tbl_name ORDER BY m.tbl_name

-- name: storage.free
-- Bytes of pages that rows have left: the next rows take them.
SELECT f.freelist_count * p.page_size FROM pragma_freelist_count f, pragma_page_size p
