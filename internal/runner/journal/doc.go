// Package journal keeps the frames of a run on disk: appended by one writer,
// read by any number of readers from any frame.
//
//	<run>.log   magic, then records: length of body (4), CRC-32C of body (4), body
//	            body = kind (1) stream or mark (1) flags (1) time (8) number (8) data
//
// The newest records and the offsets of some frames are in memory too; the log has all that they say.
//
// Invariants:
//   - Frames are numbered 0, 1, … without a gap; the number is part of the record.
//   - A reader sees whole records only, and only such as were written whole.
//   - The index is made of the log when a journal is opened again.
//   - What Append and Mark have written survives the writer at once. It is on disk (fsync) after Sync, and after a mark Cut or
//     Sealed, with everything before it.
//   - Nothing follows a final mark: cut, closed, or sealed.
//
// An invalid tail (torn, or with a bad checksum) is truncated when the journal is opened. The
// runner's death loses nothing that was written; only a crash of its machine loses what was not synced, and tears a record: a
// failed append is undone at once.
package journal
