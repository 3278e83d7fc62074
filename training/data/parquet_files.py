"""Parquet files as tables."""

from collections.abc import Sequence

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

from .dataset_calls import checksum, error_reason, load_files
from .text_files import ReadError


def read_parquet(file: str) -> datasets.Dataset:
    features = parquet_features([file])
    table = load_files("parquet", [file], name=checksum([file]), features=features)
    try:
        table.data.table.validate(full=True)  # the reader does not look into the texts
    except pa.ArrowInvalid as error:
        raise ReadError(f"{file!r} cannot be read as parquet: {error_reason(error)}") from error
    return table


def parquet_features(files: Sequence[str]) -> datasets.Features:
    """The features of the columns of the first of several shards. The type of a column that has
    only nulls there is that of the first shard with values in it."""
    features: datasets.Features = datasets.Features()
    for number, file in enumerate(files):
        try:
            schema = pq.read_schema(file)
        except (pa.ArrowInvalid, OSError) as error:
            raise ReadError(f"{file!r} cannot be read as parquet: {error_reason(error)}") from error
        for index, column in enumerate(schema):
            schema = schema.set(index, column.with_type(plain_type(column.type)))
        for name, feature in datasets.Features.from_arrow_schema(schema).items():
            if number == 0 or features.get(name) == datasets.Value("null"):
                features[name] = feature
    return features


def plain_type(arrow_type: pa.DataType) -> pa.DataType:
    """The type with the same values that all of `datasets` knows: views (as Polars writes them) and
    dictionaries (categories of pandas) are only other ways to store them."""
    if arrow_type == pa.string_view():
        return pa.string()
    if arrow_type == pa.binary_view():
        return pa.binary()
    if pa.types.is_dictionary(arrow_type):
        return plain_type(arrow_type.value_type)
    if pa.types.is_list(arrow_type):
        return pa.list_(plain_type(arrow_type.value_type))
    return arrow_type
