-- Creates the archive's partitions for today and the coming days; several relays may do it at once.
-- One row: created integer
select outbox.archive_prepare() as created;
