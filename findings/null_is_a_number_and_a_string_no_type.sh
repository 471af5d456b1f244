#!/usr/bin/env bash
# A null in a column of texts reaches the function of predict_batch_udf as a float, NaN: pyspark 4.3.0 with pandas 3.1.1.
# A function that makes texts of what it gets, as str() or NumPy's astype(str) do, predicts on the word nan, and no row says so.
# A return type that is a string, which the documentation of predict_batch_udf allows, passes until the first batch
# is answered, and there ends the job with "Unsupported return type".
#
# Guessed: a null is None, which no TensorFlow takes for a text, so that the job fails; and the string is parsed, as
# pandas_udf does with the same words.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet pyspark==4.3.0 pandas==3.1.1 pyarrow==25.0.1 numpy==2.4.6
export PYSPARK_PYTHON=$folder/venv/bin/python
venv/bin/python - 2>log <<'PY'
import numpy as np
import pyspark
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType

spark = SparkSession.builder.master("local[1]").getOrCreate()
rows = spark.createDataFrame([("good",), (None,)], "text string").coalesce(1)


def types():
    return lambda texts: np.array([type(text).__name__ for text in texts], object)


def words():
    return lambda texts: texts.astype(str).astype(object)


def answers(make, return_type):
    answer = predict_batch_udf(make, return_type=return_type, batch_size=8)
    return [row[0] for row in rows.select(answer("text")).collect()]


seen, read = answers(types, StringType()), answers(words, StringType())
print(pyspark.__version__, "good and null are", seen, "and as texts", read)
assert (seen, read) == (["str", "float"], ["good", "nan"])
try:
    answers(types, "string")
except Exception as error:
    refused = str(error).strip().splitlines()[-1]
print('return_type="string":', refused)
assert refused == "ValueError: Unsupported return type"
PY
