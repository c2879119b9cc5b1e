package localmodal_test

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

// shared is the server of all tests that only use it, since starting one takes longer than most of
// them. Each test has its own app.
var shared sharedServer

type sharedServer struct {
	once   sync.Once
	server *localmodal.Server
	stop   context.CancelFunc
	done   chan error
	dir    string
	err    error
}

// get starts the server when the first test needs it.
func (s *sharedServer) get() (*localmodal.Server, error) {
	s.once.Do(func() { s.err = s.start() })
	return s.server, s.err
}

func (s *sharedServer) start() (err error) {
	level, err := box.ParseIsolation(os.Getenv(testLevel))
	if err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp(memorytest.Executable(), "localmodal"); err != nil {
		return err
	}
	if s.server, err = localmodal.New(localmodal.Options{DataDir: s.dir, Isolation: level}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop, s.done = cancel, make(chan error, 1)
	go func() { s.done <- s.server.Run(ctx) }()
	return nil
}

// end stops the server, if it was started.
func (s *sharedServer) end() (err error) {
	if s.stop != nil {
		s.stop()
		err = <-s.done
	}
	if s.dir != "" {
		err = errors.Join(err, localmodaltest.Unlock(s.dir), os.RemoveAll(s.dir))
	}
	return err
}
