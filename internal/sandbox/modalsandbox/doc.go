// Package modalsandbox is the driver for Modal, on its Go SDK. The same code talks
// to Modal and to a server on this machine that speaks its protocol: only
// Config.ServerURL differs.
//
// The SDK has habits that this package keeps to itself:
//
//   - The server's address is read from the environment. config.go gives it without.
//   - Some calls fail with typed errors, others with bare gRPC statuses. classify.go
//     is the one place that sorts them.
//   - File calls say NotFound for a dead sandbox and for an unreachable one alike;
//     here that is Unavailable, and package sandbox asks Poll.
//   - Handles hold a connection each: they are kept and shared by id.
//   - A listing has names and tags, the SDK's iterator drops them. list.go reads them
//     as they pass, so that a listing costs one call and not one per sandbox.
//   - Throttling is slept off without limit: here at most for 30 seconds, then the caller gets an
//     error.
package modalsandbox
