-- Are there jobs available?
SELECT * FROM processing_jobs WHERE status IN ('pending', 'retry') LIMIT 10;

-- Are they locked?
SELECT * FROM processing_jobs WHERE locked_until > NOW();

-- Any expired leases?
SELECT * FROM processing_jobs WHERE locked_until < NOW() AND status = 'processing';

-- Why do they fail?
SELECT id, job_id, attempts, last_error
FROM processing_jobs
WHERE status = 'failed'
ORDER BY updated_at DESC
LIMIT 10;
