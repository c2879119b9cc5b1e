package localmodal

import (
	"errors"
	"path/filepath"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"

	"github.com/overwinter-dev/overwinter/internal/localmodal/store"
)

type appRecord struct {
	ID, Name, Environment string
}

type secretRecord struct {
	ID, Name, Environment string
	Env                   map[string]string
}

type volumeRecord struct {
	ID, Name, Environment string
}

// tagRecord is a published name of an image.
type tagRecord struct {
	Name, Environment, ImageID string
}

// root is an image from which a sandbox can start.
type root struct {
	Layers  []string // top first, the base last
	Env     map[string]string
	Workdir string
}

type imageRecord struct {
	ID      string
	Root    root
	Archive string            // for an image of a directory: a tar file instead of a root
	Recipe  string            // hash of the build instructions
	Key     string            // the client's id of the snapshot
	Expires time.Time         // zero for never
	Created time.Time         // zero for one of an older release
	Tags    map[string]string `json:",omitempty"` // tags of the sandbox from which it was made
	Exit    bool              `json:",omitempty"` // made at the end of that sandbox
	Sandbox string            `json:",omitempty"` // id of that sandbox, for an exit image
}

func (i imageRecord) expired(now time.Time) bool { return !i.Expires.IsZero() && now.After(i.Expires) }

// sandboxRecord is the persistent state of a sandbox. It omits the environment, which may contain
// secrets and is not needed after the end.
type sandboxRecord struct {
	ID, TaskID, AppID string
	Name              string
	ImageID           string
	Root              root
	Tags              map[string]string
	Created           time.Time
	Timeout           time.Duration
	IdempotencyKey    string
	ExitSnapshot      bool
	ExitImageID       string

	Ended    time.Time // zero while it runs
	Status   pb.GenericResult_GenericStatus
	ExitCode int32
	Reason   string `json:",omitempty"` // the limit that it exceeded
}

func (r sandboxRecord) ended() bool { return !r.Ended.IsZero() }

// records is the state on disk.
type records struct {
	apps      *store.Collection[appRecord]
	secrets   *store.Collection[secretRecord]
	volumes   *store.Collection[volumeRecord]
	tags      *store.Collection[tagRecord]
	images    *store.Collection[imageRecord]
	sandboxes *store.Collection[sandboxRecord]
}

func openRecords(dir string) (*records, error) {
	var r records
	if err := errors.Join(
		open(&r.apps, dir, "apps"),
		open(&r.secrets, dir, "secrets"),
		open(&r.volumes, dir, "volumes"),
		open(&r.tags, dir, "tags"),
		open(&r.images, dir, "images"),
		open(&r.sandboxes, dir, "sandboxes"),
	); err != nil {
		return nil, err
	}
	return &r, nil
}

func open[T any](to **store.Collection[T], dir, name string) error {
	c, err := store.Open[T](filepath.Join(dir, name))
	*to = c
	return err
}
