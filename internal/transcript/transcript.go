package transcript

// Segment is a piece of a native transcript file of the agent.
type Segment struct {
	SessionID string
	RunID     string
	Path      string // absolute, in the sandbox
	Version   int64  // increases when the file was rewritten rather than appended to
	Offset    int64
	Data      []byte
}

// File is a complete native transcript.
type File struct {
	Path    string
	Version int64
	Data    []byte
}

// Position is how much of a transcript file is stored.
type Position struct {
	Path    string `json:"path"`
	Version int64  `json:"version"`
	Size    int64  `json:"size"`
	// Cut means that further bytes of the file exceeded a limit and are not stored. A runner sends
	// no more of this version.
	Cut bool `json:"cut,omitempty"`
}
