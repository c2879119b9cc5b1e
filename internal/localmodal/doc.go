// Package localmodal is a Modal-compatible server on this machine: Modal's unmodified SDK, with
// MODAL_SERVER_URL set to its address, gets sandboxes that are local processes. It is the provider
// that development starts with, and the test bed of what runs on Modal in production.
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
// is in a container or a weaker level was requested: a root directory alone (chroot), or a plain
// directory. Package box describes them. The server logs its level and what the level lacks, and
// names it in a header of every response (isolationHeader).
//
// A sandbox's way, each step told apart by what a client sees:
//
//	reserved ──start──▶ running ──┬─ its command ended ───────▶ its exit code ─┐
//	   │                          ├─ Terminate, server stops ─▶ 137            ├─▶ ended: files
//	   └─ failed: forgotten       ├─ lifetime over ───────────▶ 124            │   discarded, or
//	                              └─ unused for too long ─────▶ 137            ┘   the exit image
//
// Invariants:
//
//   - An image that can be found by its id is whole and on disk.
//   - A sandbox that can be found by its id has a record on disk.
//   - Of one app, no two running sandboxes have the same name.
//   - A create, an exec or a snapshot that the SDK repeats because it lost the
//     answer happens once. Creates and snapshots are known even after a restart.
//   - A layer is deleted only when no image and no running sandbox is made of it, and
//     no call that is under way has begun to use or to make it.
//   - A call is answered only if it carries the installation's token (package access),
//     or, for what happens in a sandbox, a token issued for that sandbox alone.
//   - No process of a sandbox outlives the server, however the server ends.
//   - A process in a sandbox does not depend on the client that started it.
//
// When things fail:
//
//	client leaves during a create      the sandbox is started; the repeated call gets it
//	client leaves during a snapshot    the snapshot is given up, the sandbox runs on
//	server stops (Run's ctx ends)      sandboxes end with 137; exit images are made
//	server is killed                   the sandboxes die with it; the next server shows them
//	                                   ended with 137 and makes their exit images from what is on disk
//	machine loses power                as above; images survive, being synced before they are known
//	two servers on one directory       the second refuses to start
//	no namespaces on this machine      New fails and names the command that enables them
//	                                   (box.UnsupportedError); in a container a weaker level is used
//	more is asked for than the level   the call fails with Unimplemented and names the level
//	can do
//	disk full                          creates and snapshots fail with ResourceExhausted and leave nothing;
//	                                   what runs, runs on
//
// What is unlike Modal: every registry image is the same base, made from this
// machine's /usr and /opt, of which a sandbox changes its own view if the server is root; tunnels are plain TCP on the
// loopback interface; sandboxes share the machine's network unless they block it or
// Options.Network gives them their own (package netstack);
// CPU and memory requests and limits are ignored; an image mounted over a directory
// lives in memory where anything can be mounted. GPUs, memory snapshots, sidecars, network allow-lists, proxies
// and cloud buckets are refused.
package localmodal
