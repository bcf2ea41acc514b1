-- Fails when one of these events is still in the table after it was deleted: something keeps it, or it was updated while it
-- was deleted. SQL has no RAISE; a text that is no number says it as well. As a statement of its own it sees what the others
-- have done, and what somebody else has deleted. It looks only where the statements before it have found rows missing.
--
-- :table :where :id   the queue's table (as e), its filter and its order column; what the filter leaves out is done with
-- :table_name         the table's name as a literal, to be read
-- $1 bigint[]         ids
-- No rows.
select pg_catalog.concat('event ', :id, ' is still in ', :table_name,
                         ' after DELETE: a trigger or policy keeps it, or it was updated just now')::bigint as kept
from :table e
where (select pg_catalog.current_setting('courier.missing', true)) = 'yes' and :id = any ($1::bigint[]) and (:where)
order by :id
limit 1
