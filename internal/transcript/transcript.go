package transcript

// Segment is a piece of one of the agent's native transcript files.
type Segment struct {
	SessionID string
	RunID     string
	Path      string // absolute, in the sandbox
	Version   int64  // rises when the file was rewritten rather than appended to
	Offset    int64
	Data      []byte
}

// File is a native transcript, whole.
type File struct {
	Path    string
	Version int64
	Data    []byte
}

// Position says how much of a transcript file is stored.
type Position struct {
	Path    string `json:"path"`
	Version int64  `json:"version"`
	Size    int64  `json:"size"`
	// Cut: the file has more bytes, which are beyond a limit and not stored. A runner sends no more of this version.
	Cut bool `json:"cut,omitempty"`
}
