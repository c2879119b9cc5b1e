package wire

// Argument zero of the re-executed program.
const (
	InitName      = "overwinter-sandbox-init"
	FileToolsName = "modal-sandbox-fs-tools"
)

// The levels of isolation, for RootSpec.Level.
const (
	LevelNamespaces = "namespaces"
	LevelChroot     = "chroot"
	LevelDirectory  = "directory"
)

// Descriptors that init inherits.
const (
	ControlFD = 3 // the control socket
	SpecFD    = 4 // a memory file that contains a RootSpec
	MountFD   = 5 // the first of the mounts that the RootSpec refers to by descriptor
)

// Op is the kind of a request to init, or of a response.
type Op string

// Requests. Each is answered by OpOK or OpError unless its comment says otherwise.
const (
	OpExec    Op = "exec"    // files: spec, stdin, stdout, stderr; answered by OpStarted, later OpExited
	OpSignal  Op = "signal"  // Request.ID is that of the exec; has no response
	OpFreeze  Op = "freeze"  // stop every process and delay new ones
	OpThaw    Op = "thaw"    // reverse OpFreeze
	OpDial    Op = "dial"    // Address; answered by OpConn with one file
	OpMount   Op = "mount"   // Path; file: a tar stream with the content, or none
	OpUnmount Op = "unmount" // Path
	OpEnd     Op = "end"     // kill every process and exit; has no response
	OpArchive Op = "archive" // Path, OneFilesystem; file: destination of the tar stream
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
	OneFilesystem bool   `json:",omitempty"` // omit mounts below Path
}

// Response is a message from init. ID is that of its request.
type Response struct {
	ID     uint64
	Op     Op
	PID    int    `json:",omitempty"` // inside the sandbox's PID namespace
	Code   int    `json:",omitempty"` // exit code, 0 when Signal is set
	Signal int    `json:",omitempty"` // the signal that ended the process
	Error  string `json:",omitempty"`
	Errno  int    `json:",omitempty"` // system error number of Error, 0 if there is none
	Device string `json:",omitempty"` // kind of the network device sent with OpReady, followed by sockets for RootSpec.HostPorts
	Lack   string `json:",omitempty"` // why there are no sockets for RootSpec.HostPorts
}

// RootSpec describes the root that init builds.
type RootSpec struct {
	Level     string   // one of the levels above
	Layers    Place    // the directory of layers
	Box       Place    // the sandbox's own directory
	Tree      bool     // the root is the directory "tree" of Box; else an overlay of the following, in "root"
	Lower     []string // overlay layers, top first, relative to Layers; "upper" and "work" of Box are above
	IDs       int      // number of users and groups of the sandbox's user namespace; 0 if it has none
	Hostname  string
	Workdir   string // created if missing; empty for none
	Mounts    []Mount
	Overlays  []Overlay // overlays of the host's programs, if the sandbox may change them
	Network   bool      // open a device in a new network namespace and send it with OpReady
	HostPorts []uint16  // with Network: open sockets for these ports of the host and send them too
	Loopback  bool      // bring up the loopback interface of a new network namespace
	// Processes bounds the concurrent processes of all users of the inner user namespace together.
	Processes int
	// Memory is the sandbox's limit in bytes, from which the limits of its files in memory are
	// derived.
	Memory int64
	// Expendable makes the kernel kill the sandbox's processes first if memory runs out.
	Expendable bool
}

// Place is a directory of the host: by name or, if init cannot access it by name, as a mount that
// the host has created for it.
type Place struct {
	Path string
	FD   int `json:",omitempty"` // an inherited descriptor, if not zero
}

// Overlay is a directory of the host that a sandbox can change in its own view: it reads the host's
// files and writes to its own.
type Overlay struct {
	Mount          // mount of the host's directory at Target, with a descriptor
	Lower []string // layers with changes of snapshots, top first, relative to RootSpec.Layers
	Name  string   // name of the directory below "changes" of the box that contains "upper" and "work"
}

// Mount is a bind mount from the host into a sandbox.
type Mount struct {
	FD       int  `json:",omitempty"` // an inherited descriptor of a prepared mount, if not zero; otherwise:
	IsDir    bool `json:",omitempty"` // of that mount
	Source   string
	Sub      string // path to mount below Source, to which sandboxes can write: no symbolic links are followed there
	Target   string
	ReadOnly bool
}

// ExecSpec describes one process.
type ExecSpec struct {
	Args      []string
	Env       []string
	Dir       string // must exist
	Terminal  bool   // give it a pseudo-terminal; stdout and stderr become one
	Rows      int    // of the terminal; 24 if zero
	Cols      int    // of the terminal; 80 if zero
	FileTools string // if set, run the file tools with this command instead of Args
}
