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
	MountFD   = 5 // the first of the mounts that it names by descriptor
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
	Errno  int    `json:",omitempty"` // the system's reason for Error, 0 if there is none
	Device string `json:",omitempty"` // the kind of the network device that comes with OpReady, followed by RootSpec.HostPorts
	Lack   string `json:",omitempty"` // why sockets for RootSpec.HostPorts do not
}

// RootSpec describes the root that init builds.
type RootSpec struct {
	Level     string   // one of those above
	Layers    Place    // the directory of layers
	Box       Place    // the sandbox's own directory
	Tree      bool     // the root is the directory "tree" of Box; else an overlay of the following, in "root"
	Lower     []string // overlay layers, top first, relative to Layers; "upper" and "work" of Box are above
	IDs       int      // users and groups of the sandbox's user namespace; 0 where it has none
	Hostname  string
	Workdir   string // made if missing; empty for none
	Mounts    []Mount
	Overlays  []Overlay // of the host's programs, where the sandbox may change them
	Network   bool      // open a device in a new network namespace and send it with OpReady
	HostPorts []uint16  // with Network: open sockets for these ports of the host and send them too
	Loopback  bool      // bring up the loopback interface of a new network namespace
	// Processes may exist in it at once; it counts for all users of the inner user namespace together.
	Processes int
	// Memory is its limit in bytes, from which those of its files in memory are derived.
	Memory int64
	// Expendable has the kernel end its processes before others of the machine if memory runs out.
	Expendable bool
}

// Place is a directory of the host's: by name, or, where init may not find it by
// that, as a mount that the host side has made for it.
type Place struct {
	Path string
	FD   int `json:",omitempty"` // an inherited descriptor, if not zero
}

// Overlay is a directory of the host that a sandbox sees changed: it reads the host's files and writes into its own.
type Overlay struct {
	Mount          // of the host's, at Target; with a descriptor
	Lower []string // what snapshots have changed, top first, relative to RootSpec.Layers
	Name  string   // of the directory below "changes" of the box that has "upper" and "work"
}

// Mount is a bind mount from the host into a sandbox.
type Mount struct {
	FD       int  `json:",omitempty"` // an inherited descriptor of a mount that is ready, if not zero; else:
	IsDir    bool `json:",omitempty"` // of that mount
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
