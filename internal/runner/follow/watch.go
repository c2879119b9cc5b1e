package follow

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// refreshPause is the minimum time between two diffs during a turn.
const refreshPause = 10 * time.Second

// surveyBudget is how long a prompt waits for the first scan of the workspace.
const surveyBudget = 10 * time.Second

// Watch sends the changes of a workspace over one link. Every call takes the link's context. Once
// that has ended, another link may use the index.
type Watch struct {
	workspace *Workspace
	send      func(runner.Message) error
	logger    *slog.Logger
	// surveyed is closed after the first scan of the workspace. No prompt is delivered before.
	surveyed chan struct{}
	diffKey  string         // key of the worker's diff; guarded by the workspace's lock
	head     workspace.Head // head of the repository when that diff was taken, or when the watch began; used by Run's goroutine
	mode     atomic.Value   // runner.Watch, once the workspace is watched
	// survey requests a diff, at most once per refreshPause. If nil, only Flush requests diffs.
	survey func(*runner.Survey) error
	pause  time.Duration
}

// Watch returns a watch for a link that sends with send, for one call of Run.
func (w *Workspace) Watch(send func(runner.Message) error, logger *slog.Logger) *Watch {
	return &Watch{workspace: w, send: send, logger: logger, surveyed: make(chan struct{}), pause: refreshPause}
}

// Refresh makes the watch request a diff with survey when the repository's branch or commit changes
// during a turn.
func (w *Watch) Refresh(survey func(*runner.Survey) error) { w.survey = survey }

// Mode returns how the workspace is watched; empty until it is.
func (w *Watch) Mode() runner.Watch {
	mode, _ := w.mode.Load().(runner.Watch)
	return mode
}

// AwaitSurvey waits until the runner knows the content of the workspace, so that it can distinguish
// the agent's files from earlier ones. It returns after ten seconds at the latest.
func (w *Watch) AwaitSurvey(ctx context.Context) {
	budget := time.NewTimer(surveyBudget)
	defer budget.Stop()
	select {
	case <-w.surveyed:
	case <-ctx.Done():
	case <-budget.C:
		w.logger.WarnContext(ctx, "a prompt is delivered before the first scan of the workspace has ended")
	}
}

// Run sends the changes after a position until ctx ends. If list is not nil, it first waits for the
// list of stored files that Workspace.WantsList has requested.
func (w *Watch) Run(ctx context.Context, p workspacefile.Position, list <-chan []workspacefile.Known) {
	survey := sync.OnceFunc(func() { close(w.surveyed) })
	defer survey()
	var known []workspacefile.Known
	if list != nil {
		select {
		case known = <-list:
		case <-ctx.Done():
			return
		}
	}
	k := w.workspace
	mode := runner.WatchPoll
	w.head = workspace.HeadOf(k.root)
	k.mu.Lock()
	w.diffKey = p.DiffKey
	var i *workspace.Index
	watcher := k.prepared(p)
	var err error
	if watcher != nil {
		i = k.open()
		i.Resume(p)
	} else {
		var add func(dir string)
		if watcher, err = workspace.NewWatcher(); err == nil {
			add = watcher.Add
		}
		i, _, err = k.take(p, known, add, false, w.send) // the existing directories are being watched
	}
	if watcher != nil {
		mode = runner.WatchInotify
		defer watcher.Close()
	}
	survey()
	if err == nil {
		err = report(i, w.send)
	}
	k.mu.Unlock()
	if err != nil {
		w.failed(ctx, err)
		return
	}
	w.look(ctx, i, watcher, mode)
}

func (w *Watch) failed(ctx context.Context, err error) {
	if ctx.Err() == nil {
		w.logger.WarnContext(ctx, "workspace watching disabled", slog.Any("error", err))
	}
}

// look makes a pass after each burst of changes, and periodically.
func (w *Watch) look(ctx context.Context, i *workspace.Index, watcher *workspace.Watcher, mode runner.Watch) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var cost time.Duration
	held, unannounced := false, 0
	refreshed := time.Now()
	for {
		// A file system that does not report every change is treated as if it reported none.
		if mode == runner.WatchInotify && (watcher.Broken() || unannounced > 1) {
			mode = runner.WatchPoll
			watcher.Close()
		}
		w.mode.Store(mode)
		pause := max(netFiles, 2*duty*cost)
		var wake <-chan struct{}
		var add func(string)
		if mode == runner.WatchInotify {
			wake, add = watcher.Wake(), watcher.Add
		} else {
			pause = max(pollFiles, duty*cost)
		}
		if held {
			pause = min(pause, max(pollFiles, duty*cost))
		}
		timer.Reset(pause)
		woken := held
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-wake:
			woken = true
			timer.Reset(max(quiet, duty*cost))
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
		}
		p, err := w.pass(ctx, i, watcher, add)
		if err != nil {
			w.failed(ctx, err)
			return
		}
		cost, held = p.cost, p.held
		if p.found && !woken && len(wake) == 0 {
			unannounced++
		}
		if time.Since(refreshed) < w.pause {
			continue
		}
		if survey := w.moved(ctx, i); survey != nil {
			if w.survey(survey) != nil {
				return // the link has ended
			}
			refreshed = time.Now()
		}
	}
}

// pass is the result of one pass.
type pass struct {
	cost  time.Duration // duration without sending
	found bool          // there was a change
	held  bool          // a change was held back, so another pass is due
}

// pass makes one pass over the workspace and sends the changes that it finds.
func (w *Watch) pass(ctx context.Context, i *workspace.Index, watcher *workspace.Watcher, add func(string)) (pass, error) {
	k := w.workspace
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return pass{}, err // another link uses the index now
	}
	if add != nil {
		watcher.Rearm()
	}
	started, before := time.Now(), i.Seq()
	found, err := i.Pass(false, add)
	p := pass{cost: time.Since(started)}
	if err == nil && found {
		err = report(i, w.send)
	}
	p.found, p.held = i.Seq() != before, i.Held()
	return p, err
}

// moved returns the request for a diff if the repository's branch or commit has changed since the
// last one.
func (w *Watch) moved(ctx context.Context, i *workspace.Index) *runner.Survey {
	if w.survey == nil {
		return nil
	}
	head := workspace.HeadOf(w.workspace.root)
	if head.Branch == w.head.Branch && head.Commit == w.head.Commit {
		return nil
	}
	k := w.workspace
	k.mu.Lock()
	defer k.mu.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	if err := i.Save(); err != nil {
		w.logger.WarnContext(ctx, "the index of the workspace is not kept", slog.Any("error", err))
		return nil
	}
	w.head = head
	// The key is not stored: Flush requests the diff again, because this one may fail.
	return &runner.Survey{Key: i.DiffKey(), Workspace: k.root}
}

// Flush sends all changes in the workspace so far. It returns the request for a diff if the
// worker's is outdated.
func (w *Watch) Flush(ctx context.Context) (*runner.Survey, error) {
	select {
	case <-w.surveyed:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	k := w.workspace
	k.mu.Lock()
	defer k.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	i := k.open()
	restore := inParallelIfMany(i)
	_, err := i.Pass(true, nil)
	restore()
	if err == nil {
		err = report(i, w.send)
	}
	if err != nil {
		w.failed(ctx, err)
		return nil, ctx.Err() // the turn does not wait for files
	}
	if err := i.Save(); err != nil {
		w.logger.WarnContext(ctx, "the index of the workspace is not kept", slog.Any("error", err))
		return nil, nil
	}
	if key := i.DiffKey(); key != "" && key != w.diffKey {
		w.diffKey = key
		return &runner.Survey{Key: key, Workspace: k.root}, nil
	}
	return nil, nil
}
