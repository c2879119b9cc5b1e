package supervisor

import (
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// quiet is how long a burst of changes may continue before a pass.
	quiet = 250 * time.Millisecond
	// pollFiles is the interval of passes over a workspace without inotify, and netFiles with it,
	// as a safety net.
	pollFiles, netFiles = time.Second, 15 * time.Second
	// duty bounds what looking costs: a pass over a large workspace is followed by a
	// pause of that many times as long.
	duty = 50
	// surveyBudget is how long a prompt waits for the first look at the workspace.
	surveyBudget = 10 * time.Second
)

// filesDir is where the index of the workspace is kept below the state directory.
func filesDir(state string) string { return filepath.Join(state, "workspace") }

// fileKeeper has the one index of the workspace, for whichever link is live.
type fileKeeper struct {
	root, dir string

	mu    sync.Mutex
	index *workspace.Index // nil until a worker requests it
}

// open needs mu.
func (k *fileKeeper) open() *workspace.Index {
	if k.index == nil {
		k.index = workspace.Open(k.root, k.dir)
	}
	return k.index
}

// wantsList reports whether a worker has to say what it knows.
func (k *fileKeeper) wantsList(p session.FilesPosition) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return p.Lineage != "" && !k.open().Continues(p)
}

// take makes the index continue from a position, and reports if the worker does not know its
// lineage. It needs mu.
func (k *fileKeeper) take(p session.FilesPosition, known []session.KnownFile, send func(runner.Message) error) (*workspace.Index, error) {
	i := k.open()
	if i.Continues(p) {
		i.Resume(p)
	} else {
		i.Begin(p, known)
	}
	_, err := i.Pass(true, nil)
	if err == nil && i.Lineage() != p.Lineage {
		err = send(&runner.FilesBegun{Lineage: i.Lineage(), Base: i.Base()})
	}
	return i, err
}

// tell sends what the last pass has found.
func tell(i *workspace.Index, send func(runner.Message) error) error {
	return i.Report(
		func(c session.FileChange) error { return send(&runner.FileChanged{FileChange: c}) },
		func(seq int64) error { return send(&runner.FilesBounded{Seq: seq}) },
	)
}

// seal hands over what a worker does not have, and returns the key of the diff
// that is to be taken; empty when the worker has it.
func (k *fileKeeper) seal(p session.FilesPosition, known []session.KnownFile, send func(runner.Message) error) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i, err := k.take(p, known, send)
	if err != nil {
		return "", err
	}
	if err := errors.Join(tell(i, send), i.Save()); err != nil {
		return "", err
	}
	if key := i.DiffKey(); key != p.DiffKey {
		return key, nil
	}
	return "", nil
}

// awaitSurvey waits until what is in the workspace is known, or is given up: what
// the agent makes must not be taken for what it found.
func (l *link) awaitSurvey() {
	budget := time.NewTimer(surveyBudget)
	defer budget.Stop()
	select {
	case <-l.surveyed:
	case <-l.ctx.Done():
	case <-budget.C:
		l.s.log.Warn("a prompt is delivered before the workspace was looked through", slog.String("run_id", l.run))
	}
}

// files sends the worker changes in the workspace for as long as the link lives.
func (l *link) files(p session.FilesPosition, listed bool) {
	survey := sync.OnceFunc(func() { close(l.surveyed) })
	defer survey()
	var known []session.KnownFile
	if listed {
		select {
		case known = <-l.known:
		case <-l.ctx.Done():
			return
		}
	}
	k := l.s.files
	mode := runner.WatchPoll
	w, err := workspace.NewWatcher()
	if err == nil {
		mode = runner.WatchInotify
		defer func() { w.Close() }()
	}
	send := func(m runner.Message) error { return l.send(m, true) }
	k.mu.Lock()
	l.diffKey = p.DiffKey
	i, err := k.take(p, known, send)
	survey()
	if err == nil && w != nil {
		_, err = i.Pass(true, w.Add) // what is there now is being watched
	}
	if err == nil {
		err = tell(i, send)
	}
	k.mu.Unlock()
	if err != nil {
		l.lookFailed(err)
		return
	}
	l.look(i, w, mode)
}

func (l *link) lookFailed(err error) {
	if l.ctx.Err() == nil {
		l.s.log.Warn("workspace watching disabled", slog.String("run_id", l.run), slog.Any("error", err))
	}
}

// look makes a pass after each burst of changes, and now and then without one.
func (l *link) look(i *workspace.Index, w *workspace.Watcher, mode runner.Watch) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var cost time.Duration
	held, unannounced := false, 0
	for {
		// A file system that does not report every change is treated as if it reported none.
		if mode == runner.WatchInotify && (w.Broken() || unannounced > 1) {
			mode = runner.WatchPoll
			w.Close()
		}
		l.watch.Store(mode)
		pause := max(netFiles, 2*duty*cost)
		var wake <-chan struct{}
		var add func(string)
		if mode == runner.WatchInotify {
			wake, add = w.Wake(), w.Add
		} else {
			pause = max(pollFiles, duty*cost)
		}
		if held {
			pause = min(pause, max(pollFiles, duty*cost))
		}
		timer.Reset(pause)
		woken := held
		select {
		case <-l.ctx.Done():
			return
		case <-timer.C:
		case <-wake:
			woken = true
			timer.Reset(max(quiet, duty*cost))
			select {
			case <-l.ctx.Done():
				return
			case <-timer.C:
			}
		}
		p, err := l.passFiles(i, w, add)
		if err != nil {
			l.lookFailed(err)
			return
		}
		cost, held = p.cost, p.held
		if p.told && !woken && len(wake) == 0 {
			unannounced++
		}
	}
}

// pass is what one look came to.
type pass struct {
	cost time.Duration // without the sending
	told bool          // there was something
	held bool          // something was held back, and another look is due
}

// passFiles makes one pass and sends what it finds.
func (l *link) passFiles(i *workspace.Index, w *workspace.Watcher, add func(string)) (pass, error) {
	k := l.s.files
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := l.ctx.Err(); err != nil {
		return pass{}, err // another link has the index now
	}
	if add != nil {
		w.Rearm()
	}
	started, before := time.Now(), i.Seq()
	found, err := i.Pass(false, add)
	p := pass{cost: time.Since(started)}
	if err == nil && found {
		err = tell(i, func(m runner.Message) error { return l.send(m, true) })
	}
	p.told, p.held = i.Seq() != before, i.Held()
	return p, err
}

// flushFiles sends everything that the workspace holds now. It returns the request for the diff if the worker has an older
// one.
func (l *link) flushFiles() (*runner.Survey, error) {
	select {
	case <-l.surveyed:
	case <-l.ctx.Done():
		return nil, l.ctx.Err()
	}
	k := l.s.files
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.ctx.Err() != nil {
		return nil, l.ctx.Err()
	}
	i := k.open()
	_, err := i.Pass(true, nil)
	if err == nil {
		err = tell(i, func(m runner.Message) error { return l.send(m, true) })
	}
	if err != nil {
		l.lookFailed(err)
		return nil, l.ctx.Err() // the turn is not held up by its files
	}
	if err := i.Save(); err != nil {
		l.s.log.Warn("the index of the workspace is not kept", slog.Any("error", err))
		return nil, nil
	}
	if key := i.DiffKey(); key != "" && key != l.diffKey {
		l.diffKey = key
		return &runner.Survey{Key: key, Workspace: k.root}, nil
	}
	return nil, nil
}
