package agent

// Place is where an agent works: its home and its working directory.
type Place struct{ Home, Workspace string }

// Movable is an adapter whose agent's program keeps its sessions on a person's machine in the same files as in a sandbox, so that a
// session can be moved between the two and continued with the program's own resume.
type Movable interface {
	// Local says where the program keeps the sessions of a working directory.
	Local(Place) Local
}

// Local are the sessions of a working directory on a person's machine.
type Local struct {
	// Sessions is the glob pattern of a file that each session has. Its name without the extension is the id of the session.
	Sessions string
	// Files returns glob patterns of all files of a session.
	Files func(id string) []string
	// Root is the directory that the files of all sessions of the working directory are below. Files of one place are moved to
	// another by their paths below the roots.
	Root string
	// MemoryID is the session under whose name the adapter finds such a session; an error where it cannot.
	MemoryID func(id string) (string, error)
	// LocalID is the reverse.
	LocalID func(memoryID string) (string, error)
	// Resume is the command that continues a session in the working directory.
	Resume func(id string) []string
}
