// Package event has the types and the data of the events of a session that overwinter writes
// itself, and the markers of a stream. The events of an agent's conversation are in package
// conversation. The package is pure: it only converts, and uses neither a store nor a transport.
package event
