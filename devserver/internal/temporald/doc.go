// Package temporald runs a whole Temporal cluster inside one process: the frontend, history,
// matching and worker services and the web UI, over one SQLite file (or memory).
//
//	clients ──gRPC──▶ frontend ──▶ history ─┐
//	browser ──HTTP──▶ UI ──gRPC─▶ frontend  ├──▶ one connection ──▶ FILE, FILE-wal
//	workers ◀──gRPC── frontend ◀── matching ┘                      (FILE.lock: one process)
//
// # Invariants
//
//   - One process per file: [Start] holds a lock on FILE.lock from before the file is opened until
//     [Server.Stop]. The kernel releases it when the process ends, so a kill requires no clean-up.
//   - A new file gets its tables in one transaction, so a process killed during its first start
//     leaves an empty file and never half a schema.
//   - The namespace and its search attributes exist before the first port is opened. An attribute
//     is only ever added: one that exists with another type is refused, and nothing is changed.
//   - SQLite has one connection. A second one does not make it faster: both wait for each other's
//     write lock and some requests stall for seconds.
//   - Every listener is bound to Config.IP, except those that only the services use among
//     themselves, which are always on loopback. Nothing is sent to other hosts: version check, news
//     and metrics are off. The services use TLS among themselves, with a key of this process. On
//     loopback, only the configured users of the machine are served.
//
// # Durability
//
// SQLite runs in WAL mode. Acknowledged writes have reached the kernel, so they survive the death
// of this process by any signal, with either setting of Config.Sync. The settings differ if the
// machine loses power or its kernel crashes: with [SyncFull] every commit has reached the disk
// first; with [SyncNormal] the commits since the last checkpoint of the WAL may be missing, the
// file is consistent, and workflows are in a slightly earlier state.
//
// Deleted data is overwritten in the file, and leaves the WAL within ten seconds, at the next
// checkpoint.
//
// # When things fail
//
//	what                                  what happens
//	a port is taken                       Start returns an error naming the port
//	the file is locked, foreign or broken Start returns an error naming the file; it is not touched
//	a service cannot start or dies        Temporal logs a fatal line and ends the process with 1
//	kill -9, or a panic                   acknowledged work is in FILE and FILE-wal; start again
//	a checkpoint fails                    a warning; deleted data stays in the WAL until the next one
//	the disk is full                      requests fail until there is room; nothing acknowledged is lost
package temporald
