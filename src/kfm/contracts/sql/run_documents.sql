-- name: run_documents.insert
INSERT INTO run_documents (run_id, documents) VALUES (:run_id, :documents)

-- name: run_documents.get
SELECT documents FROM run_documents WHERE run_id = :run_id
