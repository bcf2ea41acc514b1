-- The age of the event with the smallest id.
-- :table, :where, :id, :created_at (or null::timestamptz)
-- -> seconds double precision, or null
select extract(epoch from clock_timestamp() - (:created_at)::timestamptz)
  from :table e
 where (:where)
 order by :id
 limit 1;
