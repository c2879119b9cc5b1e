package wire

// Names under which a program finds itself re-executed, as argument zero.
const (
	InitName      = "overwinter-sandbox-init"
	FileToolsName = "modal-sandbox-fs-tools"
)

// The levels of isolation: what a RootSpec's Level may be.
const (
	LevelNamespaces = "namespaces"
	LevelChroot     = "chroot"
	LevelDirectory  = "directory"
)

// Descriptors that init inherits.
const (
	ControlFD = 3 // the control socket
	SpecFD    = 4 // a memory file holding a RootSpec
)

// Op names a request to init, or an answer from it.
type Op string

// Requests. Each is answered by OpOK or OpError unless its comment says otherwise.
const (
	OpExec    Op = "exec"    // files: spec, stdin, stdout, stderr; answered by OpStarted, later OpExited
	OpSignal  Op = "signal"  // Request.ID is that of the exec; never answered
	OpFreeze  Op = "freeze"  // stop every process and hold back new ones
	OpThaw    Op = "thaw"    // undo OpFreeze
	OpDial    Op = "dial"    // Address; answered by OpConn with one file
	OpMount   Op = "mount"   // Path; file: a tar stream to fill it with, or none
	OpUnmount Op = "unmount" // Path
	OpEnd     Op = "end"     // kill every process and exit; never answered
	OpArchive Op = "archive" // Path, OneFilesystem; file: where the tar stream goes
)

// Answers.
const (
	OpReady   Op = "ready"
	OpStarted Op = "started"
	OpExited  Op = "exited"
	OpConn    Op = "conn"
	OpOK      Op = "ok"
	OpError   Op = "error"
)

// Request is a message to init.
type Request struct {
	ID            uint64
	Op            Op
	Signal        int    `json:",omitempty"`
	Path          string `json:",omitempty"`
	Address       string `json:",omitempty"` // host:port as seen inside the sandbox
	OneFilesystem bool   `json:",omitempty"` // leave out what is mounted below Path
}

// Response is a message from init. ID is that of the request it belongs to.
type Response struct {
	ID     uint64
	Op     Op
	PID    int    `json:",omitempty"` // inside the sandbox's PID namespace
	Code   int    `json:",omitempty"` // exit code, 0 when Signal is set
	Signal int    `json:",omitempty"` // the signal that ended the process
	Error  string `json:",omitempty"`
}

// RootSpec tells init which root to build.
type RootSpec struct {
	Level    string   // one of those above
	Tree     string   // the root itself; when empty, the root is an overlay of the following
	Root     string   // an empty directory to mount the root on
	Lower    []string // overlay layers, top first, relative to the working directory
	Upper    string
	Work     string
	Hostname string
	Workdir  string // made if missing; empty for none
	Mounts   []Mount
	Loopback bool // bring up the loopback interface of a network namespace of our own
}

// Mount is a bind mount from the host into a sandbox.
type Mount struct {
	Source   string
	Sub      string // what to mount below Source, which sandboxes can write to: no symbolic link is followed there
	Target   string
	ReadOnly bool
}

// ExecSpec describes one process.
type ExecSpec struct {
	Args      []string
	Env       []string
	Dir       string // must exist
	Terminal  bool   // give it a pseudo-terminal; stdout and stderr become one
	Rows      int    // of the terminal; 24 when zero
	Cols      int    // of the terminal; 80 when zero
	FileTools string // when set, run the file tools with this command instead of Args
}
