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

// refreshPause is the least time between two diffs that are taken while a turn runs.
const refreshPause = 10 * time.Second

// surveyBudget is how long a prompt waits for the first look at the workspace.
const surveyBudget = 10 * time.Second

// Watch sends the changes of a workspace over one link. Its context is that of the link in every call; once that has ended,
// another link may have the index.
type Watch struct {
	workspace *Workspace
	send      func(runner.Message) error
	logger    *slog.Logger
	// surveyed is closed when the first look at the workspace is over: no prompt is delivered before.
	surveyed chan struct{}
	diffKey  string         // of the diff that the worker has; guarded by the workspace's lock
	head     workspace.Head // of the repository when that was taken, or the watch began; of the goroutine of Run
	mode     atomic.Value   // runner.Watch, once the workspace is watched
	// survey has a diff taken, at most once in a pause. Without one, diffs are taken by Flush alone.
	survey func(*runner.Survey) error
	pause  time.Duration
}

// Watch returns the watch of a link that sends with send, for one call of Run.
func (w *Workspace) Watch(send func(runner.Message) error, logger *slog.Logger) *Watch {
	return &Watch{workspace: w, send: send, logger: logger, surveyed: make(chan struct{}), pause: refreshPause}
}

// Refresh has diffs taken by survey when the repository has another branch or commit than before, while a turn runs.
func (w *Watch) Refresh(survey func(*runner.Survey) error) { w.survey = survey }

// Mode is how the workspace is watched; empty until it is.
func (w *Watch) Mode() runner.Watch {
	mode, _ := w.mode.Load().(runner.Watch)
	return mode
}

// AwaitSurvey waits until the runner knows what is in the workspace, so that it does not take what the agent makes for what
// the agent found. It gives up after ten seconds.
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

// Run sends the changes after a position until ctx ends. If list is not nil, it first waits for the files that the worker
// has stored, for which Workspace.WantsList has asked.
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
	var add func(dir string)
	watcher, err := workspace.NewWatcher()
	if err == nil {
		mode, add = runner.WatchInotify, watcher.Add
		defer func() { watcher.Close() }()
	}
	w.head = workspace.HeadOf(k.root)
	k.mu.Lock()
	w.diffKey = p.DiffKey
	i, err := k.take(p, known, add, w.send) // what is there now is being watched
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

// look makes a pass after each burst of changes, and now and then without one.
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

// pass is the result of one look.
type pass struct {
	cost  time.Duration // without the sending
	found bool          // there was a change
	held  bool          // a change was held back, and another look is due
}

// pass makes one pass over the workspace and sends what it finds.
func (w *Watch) pass(ctx context.Context, i *workspace.Index, watcher *workspace.Watcher, add func(string)) (pass, error) {
	k := w.workspace
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return pass{}, err // another link has the index now
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

// moved returns the request for the diff if the repository has another branch or commit than when the last one was taken.
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
	// The key is not kept: Flush has the diff taken again, since this one may fail.
	return &runner.Survey{Key: i.DiffKey(), Workspace: k.root}
}

// Flush sends every change in the workspace up to now. It returns the request for the diff if the worker has an older one.
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
	_, err := i.Pass(true, nil)
	if err == nil {
		err = report(i, w.send)
	}
	if err != nil {
		w.failed(ctx, err)
		return nil, ctx.Err() // the turn does not wait for its files
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
