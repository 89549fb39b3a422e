#!/usr/bin/env python3
"""Runs a query on a data set of ranks with Spark SQL.

Usage: spark-submit [--master URL …] query.py QUERY DIR [--json]

QUERY is one of memtrack-cli/queries (ranks, usual, outliers, why, skew, timeline, stacks, lifetimes), a file with a SELECT, or a
SELECT. DIR is the output of `memtrack export --parquet` or export_ranks.py, or any location that Spark can read. --json prints one
JSON object per line, one for each row. The repository's docs/RANKS.md has the tables.
Exit codes: 0 success, 2 wrong usage, 3 no data set there.
"""

import argparse
import json
import sys
from pathlib import Path

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

QUERIES = Path(__file__).resolve().parents[1] / "queries"
TABLES = ["runs", "devices", "timeline", "groups", "steps", "out_of_memory", "live", "stacks", "frames", "events"]
PARTITIONS = [StructField("job", StringType()), StructField("rank", LongType())]


def make_views(spark, folder):
    """Creates views of the tables of a data set. A job's name stays a string, even if it is `17`, which Spark would infer as a
    number."""
    folder = folder.rstrip("/")
    for table in TABLES:
        files = f"{folder}/job=*/rank=*/{table}.parquet"
        read = spark.read.option("basePath", folder)
        columns = [field for field in read.parquet(files).schema if field.name not in ("job", "rank")]
        read.schema(StructType(columns + PARTITIONS)).parquet(files).createOrReplaceTempView(table)


def text_of(query):
    """Returns the requested SELECT."""
    named = QUERIES / f"{query}.sql"
    for file in (named, Path(query)):
        if " " not in query and file.is_file():
            return file.read_text(encoding="utf-8")
    if len(query.split()) > 1:
        return query
    known = ", ".join(sorted(file.stem for file in QUERIES.glob("*.sql") if not file.stem.startswith("tables.")))
    raise FileNotFoundError(f"there is no query and no file {query}; queries are {known}")


def main():
    parser = argparse.ArgumentParser(prog="query.py", description="Answers a question about a data set of ranks in Spark SQL.")
    parser.add_argument("query", metavar="QUERY", help="one of memtrack-cli/queries, a file with a SELECT, or a SELECT")
    parser.add_argument("folder", metavar="DIR", help="the data set")
    parser.add_argument("--json", action="store_true", help="print a JSON object a line for each row")
    arguments = parser.parse_args()
    try:
        text = text_of(arguments.query)
    except FileNotFoundError as error:
        print(f"query.py: {error}", file=sys.stderr)
        return 2
    spark = SparkSession.builder.appName(f"memtrack query of {arguments.folder}").getOrCreate()
    try:
        make_views(spark, arguments.folder)
    except AnalysisException as error:
        print(f"query.py: {arguments.folder} is not a data set of ranks: {error}", file=sys.stderr)
        return 3
    try:
        answer = spark.sql(text)
    except (AnalysisException, ParseException) as error:
        print(f"query.py: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        for row in answer.collect():
            print(json.dumps(row.asDict()))
    else:
        rows = answer.cache()
        rows.show(max(rows.count(), 1), truncate=False)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
