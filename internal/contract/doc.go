// Package contract is the interface between the workflow of a session and its clients: its name and
// input, the task queues of an installation, the signals and the query of the workflow, and the
// search attributes that it sets. The workflow implements it; the api's client, the workers and the
// command line use it. Open workflows and recorded histories contain these names, so they are never
// changed, and names that are no longer used are still read.
//
// Package session defines sessions; this package adds the access to their workflows, and imports
// nothing else.
package contract
