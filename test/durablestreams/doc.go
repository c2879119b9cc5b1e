// Package durablestreams checks the reads of sessions' streams with software that is not ours: the conformance suite of the Durable
// Streams protocol, and its client for TypeScript.
package durablestreams
