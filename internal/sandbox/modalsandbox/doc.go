// Package modalsandbox is the driver for Modal, based on its Go SDK. The same code is used with
// Modal and with a server on this machine that implements its protocol: only Config.ServerURL
// differs.
//
// This package hides some peculiarities of the SDK:
//
//   - It reads the server's address from the environment. config.go passes it without.
//   - Some calls fail with typed errors, others with bare gRPC statuses. classify.go is the only
//     place that distinguishes them.
//   - File calls report NotFound for a dead sandbox and for an unreachable one alike. Here that is
//     Unavailable, and package sandbox calls Poll.
//   - Each handle holds a connection, so handles are cached and shared by id.
//   - A listing contains names and tags, but the SDK's iterator drops them. list.go intercepts
//     them, so that a listing takes one call and not one per sandbox.
//   - It sleeps without limit when it is throttled. Here it sleeps for at most 30 seconds, then the
//     caller gets an error.
package modalsandbox
