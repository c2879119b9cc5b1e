// Package workspacefile has the files of a workspace as the runner reports them and Postgres stores them: their changes,
// their contents, and the diff against the state at the session's beginning.
//
// A runner numbers the changes that it finds in a lineage. A worker writes them atomically in a
// [Batch], and a [Position] is the end of the stored changes. The bounds limit all stored data of a
// workspace, whatever programs in the sandbox do.
package workspacefile
