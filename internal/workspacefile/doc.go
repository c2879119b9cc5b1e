// Package workspacefile has the files of a workspace as the runner reports them and Postgres stores them: their changes,
// their contents, and the diff against the state at the session's beginning.
//
// A runner numbers the changes that it finds in a lineage. A worker writes them in a [Batch], all or none, and a
// [Position] says how much of them is stored. The bounds are those of everything that is kept of a workspace, whatever
// programs in the sandbox do to it.
package workspacefile
