// Package manifest describes the contents of a snapshot, so that missing parts are detected after a
// restore.
//
// The runner makes a [Manifest] when it seals a sandbox, and compares the restored files with it. Bundles keep it as
// JSON, so fields are added and never renamed. A program in the sandbox may have forged it: see [Manifest.Bounded].
package manifest
