-- Is the queue's `where` a condition over its table? Planned and not run.
-- :table, :where; the table is called e here as in a claim, so that what passes here passes there
explain select from :table e where (:where);
