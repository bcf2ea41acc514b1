-- Is the queue's `where` a condition over its table? Planned and not run.
-- :table, :where
explain select from :table where (:where);
