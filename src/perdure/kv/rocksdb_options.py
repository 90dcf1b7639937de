"""How RocksDB is tuned for small values that are written, read soon, and deleted often."""

from __future__ import annotations

from typing import Final

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options

__all__ = ["options"]

_MEBIBYTE: Final = 1 << 20


def options() -> Options:
    """The options of the database, for its owner and its readers alike."""
    chosen = Options(raw_mode=True)
    chosen.create_if_missing(True)
    chosen.set_write_buffer_size(64 * _MEBIBYTE)
    chosen.set_max_write_buffer_number(4)
    chosen.set_max_total_wal_size(512 * _MEBIBYTE)
    chosen.set_max_background_jobs(4)
    chosen.set_level_compaction_dynamic_level_bytes(True)
    chosen.set_compression_type(DBCompressionType.lz4())
    chosen.set_bottommost_compression_type(DBCompressionType.zstd())
    chosen.set_max_open_files(512)
    chosen.set_keep_log_file_num(4)
    # Queues and indexes delete at their front all the time: compact what is mostly deletions.
    chosen.add_compact_on_deletion_collector_factory(1024, 512, 0.3)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(128 * _MEBIBYTE))
    table.set_bloom_filter(10, False)
    table.set_block_size(8 << 10)
    table.set_format_version(5)
    chosen.set_block_based_table_factory(table)
    return chosen
