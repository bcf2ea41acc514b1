-- What an idle queue asks instead of claiming: is there anything new, or a wait that is over? It locks nothing and costs two
-- looks into an index. A wait that no claim of this queue takes is no news: keys wait though it is unordered by now, or they
-- are of another type.
--
-- :table :where :state :id :parked_key   as in lock_ids.sql
-- $1 bigint   ids greater than this are new
-- $2 text     queue
-- $3 bigint   1: keys are claimed; 0: events alone
-- No row when there is nothing, else one.
select 1 as news
where exists (select from :table e where :id > $1::bigint and (:where) order by :id desc offset 0)
   or exists (select from :state.parked p
              where p.queue = $2::text and p.next_at <= pg_catalog.statement_timestamp()
                and (p.keyless or ($3::bigint = 1 and (:parked_key) is not null))
              order by p.next_at offset 0)
