// Package journal keeps the frames of a run on disk: they are appended by one writer and read by
// any number of readers from any frame.
//
//	<run>.log   magic, then records: length of body (4), CRC-32C of body (4), body
//	            body = kind (1) stream or mark (1) flags (1) time (8) number (8) data
//
// The newest records and the offsets of some frames are also in memory, but the log is complete
// without them.
//
// Invariants:
//   - Frames are numbered 0, 1, … without a gap; the number is part of the record.
//   - A reader sees only complete records.
//   - The index is rebuilt from the log when a journal is opened again.
//   - Data written by Append and Mark survives the death of the writer at once. It is synced to
//     disk (fsync) after Sync, and after a mark Cut or Sealed, with everything before it.
//   - Nothing follows a final mark: cut, closed, or sealed. Bytes after it are not read.
//   - A run whose frames are discarded is in the ledger before its log is deleted: one file for all such
//     runs, with a line for each that says whether its prompt was delivered.
//
// An invalid tail (torn, or with a bad checksum) is truncated when the journal is opened. If the
// runner dies, no written record is lost. Only a crash of its machine loses records that were not
// synced, and may leave a torn record; a failed append is undone at once.
package journal
