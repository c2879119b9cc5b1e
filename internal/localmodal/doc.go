// Package localmodal is a Modal-compatible server on this machine: Modal's unmodified SDK, with
// MODAL_SERVER_URL set to the server's address, gets sandboxes that are local processes. It is the
// default provider for development, and the test bed for code that uses Modal in production.
//
//	SDK ──gRPC──▶ one listener ──▶ control plane (this package) ──▶ store: DIR/records
//	                   │                  │ create, end
//	                   │                  ▼
//	                   └────────▶ router ─▶ task ─▶ box ──isolation──▶ boxinit ─▶ processes
//	                              exec,     streams,  layers            init,      filetools
//	                              files,    tunnels                     tracer
//	                              snapshots
//
// Sandboxes are isolated by namespaces. If those do not work, the server does not start, unless it
// runs in a container or a weaker level was requested: only a root directory (chroot), or a plain
// directory. Package box describes the levels. The server logs its level and the abilities that the
// level lacks, and sends the level in a header of every response (isolationHeader).
//
// States of a sandbox that a client can distinguish:
//
//	reserved ──start──▶ running ──┬─ its command ended ───────▶ its exit code ─┐
//	   │                          ├─ Terminate, server stops ─▶ 137            ├─▶ ended: files
//	   └─ failed: discarded       ├─ lifetime over ───────────▶ 124            │   discarded, or
//	                              └─ unused for too long ─────▶ 137            ┘   the exit image
//
// Invariants:
//
//   - An image that can be found by its id is complete and on disk.
//   - A sandbox that can be found by its id has a record on disk.
//   - No two running sandboxes of an app have the same name.
//   - A create, an exec or a snapshot that the SDK repeats after a lost response is
//     executed once. Creates and snapshots are known even after a restart.
//   - A layer is deleted only if no image and no running sandbox is based on it, and
//     no call in progress has begun to use or to create it.
//   - A call is accepted only with the installation's token (package access) or, for
//     operations in a sandbox, with a token issued for that sandbox alone.
//   - No process of a sandbox outlives the server, regardless of how the server ends.
//   - A process in a sandbox does not depend on the client that started it.
//
// Failures:
//
//	client leaves during a create      the sandbox is started; the repeated call gets it
//	client leaves during a snapshot    the snapshot is aborted, the sandbox keeps running
//	server stops (Run's ctx ends)      sandboxes end with 137; exit images are made
//	server is killed                   the sandboxes die with it; the next server shows them
//	                                   as ended with 137 and makes their exit images from the files on disk
//	machine loses power                as above; images survive, since they are synced before they are published
//	two servers on one directory       the second refuses to start
//	no namespaces on this machine      New fails and names the command that enables them
//	                                   (box.UnsupportedError); in a container a weaker level is used
//	request exceeds the level          the call fails with Unimplemented and names the level
//	disk full                          creates and snapshots fail with ResourceExhausted and leave nothing;
//	                                   running sandboxes keep running
//
// Differences to Modal: every registry image is the same base, made from this machine's /usr and
// /opt, of which a sandbox can change its own view if the server runs as root; tunnels are plain
// TCP on the loopback interface; sandboxes share the machine's network unless they block it or
// Options.Network gives them their own (package netstack); CPU and memory requests reserve nothing,
// but maximums are limits; an image mounted over a directory is in memory if the level supports
// mounts. GPUs, memory snapshots, sidecars, outbound policies, proxies and cloud buckets are
// refused.
package localmodal
