-- The tables of a data set for Spark SQL, started in the folder that `memtrack export --parquet` wrote:
--   spark-sql -i PATH/tables.spark.sql
CREATE OR REPLACE TEMPORARY VIEW runs USING parquet
  OPTIONS (path 'job=*/rank=*/runs.parquet', basePath '.');
CREATE OR REPLACE TEMPORARY VIEW devices USING parquet
  OPTIONS (path 'job=*/rank=*/devices.parquet', basePath '.');
CREATE OR REPLACE TEMPORARY VIEW timeline USING parquet
  OPTIONS (path 'job=*/rank=*/timeline.parquet', basePath '.');
CREATE OR REPLACE TEMPORARY VIEW groups USING parquet
  OPTIONS (path 'job=*/rank=*/groups.parquet', basePath '.');
CREATE OR REPLACE TEMPORARY VIEW steps USING parquet
  OPTIONS (path 'job=*/rank=*/steps.parquet', basePath '.');
CREATE OR REPLACE TEMPORARY VIEW out_of_memory USING parquet
  OPTIONS (path 'job=*/rank=*/out_of_memory.parquet', basePath '.');
CREATE OR REPLACE TEMPORARY VIEW live USING parquet
  OPTIONS (path 'job=*/rank=*/live.parquet', basePath '.');
CREATE OR REPLACE TEMPORARY VIEW stacks USING parquet
  OPTIONS (path 'job=*/rank=*/stacks.parquet', basePath '.');
CREATE OR REPLACE TEMPORARY VIEW frames USING parquet
  OPTIONS (path 'job=*/rank=*/frames.parquet', basePath '.');
CREATE OR REPLACE TEMPORARY VIEW events USING parquet
  OPTIONS (path 'job=*/rank=*/events.parquet', basePath '.');
