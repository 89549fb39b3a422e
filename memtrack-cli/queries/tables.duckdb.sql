-- The tables of a data set for DuckDB, started in the folder that `memtrack export --parquet` wrote:
--   duckdb -init PATH/tables.duckdb.sql
CREATE OR REPLACE VIEW runs AS SELECT * FROM read_parquet('job=*/rank=*/runs.parquet',
  hive_partitioning = true, hive_types = {'job': VARCHAR, 'rank': BIGINT});
CREATE OR REPLACE VIEW devices AS SELECT * FROM read_parquet('job=*/rank=*/devices.parquet',
  hive_partitioning = true, hive_types = {'job': VARCHAR, 'rank': BIGINT});
CREATE OR REPLACE VIEW timeline AS SELECT * FROM read_parquet('job=*/rank=*/timeline.parquet',
  hive_partitioning = true, hive_types = {'job': VARCHAR, 'rank': BIGINT});
CREATE OR REPLACE VIEW groups AS SELECT * FROM read_parquet('job=*/rank=*/groups.parquet',
  hive_partitioning = true, hive_types = {'job': VARCHAR, 'rank': BIGINT});
CREATE OR REPLACE VIEW steps AS SELECT * FROM read_parquet('job=*/rank=*/steps.parquet',
  hive_partitioning = true, hive_types = {'job': VARCHAR, 'rank': BIGINT});
CREATE OR REPLACE VIEW out_of_memory AS SELECT * FROM read_parquet('job=*/rank=*/out_of_memory.parquet',
  hive_partitioning = true, hive_types = {'job': VARCHAR, 'rank': BIGINT});
CREATE OR REPLACE VIEW live AS SELECT * FROM read_parquet('job=*/rank=*/live.parquet',
  hive_partitioning = true, hive_types = {'job': VARCHAR, 'rank': BIGINT});
CREATE OR REPLACE VIEW stacks AS SELECT * FROM read_parquet('job=*/rank=*/stacks.parquet',
  hive_partitioning = true, hive_types = {'job': VARCHAR, 'rank': BIGINT});
CREATE OR REPLACE VIEW frames AS SELECT * FROM read_parquet('job=*/rank=*/frames.parquet',
  hive_partitioning = true, hive_types = {'job': VARCHAR, 'rank': BIGINT});
CREATE OR REPLACE VIEW events AS SELECT * FROM read_parquet('job=*/rank=*/events.parquet',
  hive_partitioning = true, hive_types = {'job': VARCHAR, 'rank': BIGINT});
