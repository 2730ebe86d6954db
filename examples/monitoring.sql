-- Who works on what.
SELECT locked_by, COUNT(*) as active_tasks
FROM tasks
WHERE status = 'running' AND lease_timeout > NOW()
GROUP BY locked_by;

-- What was tried more than once, or is being tried.
SELECT id, type, try_count, max_tries, status
FROM tasks
WHERE try_count > 0
ORDER BY try_count DESC;

-- Leases past their end, which workers take back by themselves.
SELECT id, type, locked_by, lease_timeout
FROM tasks
WHERE status = 'running' AND lease_timeout < NOW();
