-- Behind a pooler no session is the relay's own to show what it serves: it says so itself, for a minute and a half. And it looks
-- for others that serve rows of that table by another class of locks.
-- $1 queue text, $2 the table's oid text, $3 class of its locks text, $4 the relay text, $5 it is behind a pooler: boolean
-- -> refusal text: who it is; null: there is none. tbl text, class text: what it serves, and by what;
-- said boolean: it is behind a pooler and has said so itself, which counts for a while after its end
select n.refusal, n.other_tbl::text as tbl, n.other_class::text as class, n.said
  from outbox.note_serving($1::text, ($2::text)::oid, ($3::text)::integer, $4::text, ($5::text)::boolean) as n
