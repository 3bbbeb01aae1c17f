// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// Each calls f for 0 to n-1, with at most atOnce calls at one time. After the last call, Each
// returns the joined errors (see join). If a call has panicked, so does Each.
func Each(n, atOnce int, f func(i int) error) error {
	outcomes := make([]Outcome[struct{}], n)
	room := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			outcomes[i] = Catch(func() (struct{}, error) { return struct{}{}, f(i) })
		})
	}
	wg.Wait()
	var errs []error
	for _, o := range outcomes {
		if _, err := o.Get(); err != nil {
			errs = append(errs, err)
		}
	}
	return join(errs)
}

// Ask queries all objects at the same time and yields the answers as they come, until all objects
// have answered, timeout is over, or ctx ends. A hung object delays the answers of other objects by
// at most timeout. When the caller stops the loop early, the remaining calls end on their own, and
// the caller no longer waits for them.
func Ask[K, T any](ctx context.Context, objects []K, timeout time.Duration,
	ask func(ctx context.Context, object K) (T, error)) iter.Seq2[K, Outcome[T]] {
	return AskSome(ctx, objects, nil, len(objects), timeout, ask)
}

// AskSome is Ask with a limit on the unanswered objects of each owner. An object counts as
// unanswered even if its call is refused because Windows already hangs on it. An owner's hung
// objects leave room for other calls, however many there are: a [Windows] also limits its calls on
// each other owner's objects, in all queries together. If ownerOf is nil, all objects are the
// caller's own.
func AskSome[K, T any](ctx context.Context, objects []K, ownerOf func(object K) string, atOnce int, timeout time.Duration,
	ask func(ctx context.Context, object K) (T, error)) iter.Seq2[K, Outcome[T]] {
	return func(yield func(K, Outcome[T]) bool) {
		byOwner := make(map[string][]int)
		for i, object := range objects {
			owner := ""
			if ownerOf != nil {
				owner = ownerOf(object)
			}
			byOwner[owner] = append(byOwner[owner], i)
		}
		outcomes := make([]Outcome[T], len(objects))
		askOne := func(ctx context.Context, i int) error {
			if ownerOf != nil {
				ctx = context.WithValue(ctx, ownerKey{}, ownerOf(objects[i]))
			}
			outcomes[i].value, outcomes[i].err = ask(ctx, objects[i])
			return outcomes[i].err
		}
		AskByOwner(ctx, len(objects), byOwner, atOnce, timeout, askOne, func(i int) bool { return yield(objects[i], outcomes[i]) })
	}
}

// UnknownOwner returns the owner of an object that may belong to any driver, for AskSome.
func UnknownOwner[K any](K) string { return "?" }

// ownerKey has the owner of the object of a call in AskSome.
type ownerKey struct{}

// AskByOwner is AskSome for the objects 0 to count-1, grouped by owner, and without type
// parameters: programs contain its code only once. If a call has panicked, so does AskByOwner.
func AskByOwner(ctx context.Context, count int, byOwner map[string][]int, atOnce int, timeout time.Duration,
	ask func(ctx context.Context, i int) error, yield func(i int) bool) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	asking, tracker := WithTracker(asking)
	defer TrackerOf(ctx).WaitFor(tracker)()
	answers := make(chan Outcome[int], count)
	for owner, owned := range byOwner {
		go func() {
			asking := asking
			if owner != "" {
				asking = context.WithValue(asking, ownerKey{}, owner)
			}
			room := make(chan struct{}, atOnce)
			for _, i := range owned {
				select {
				case room <- struct{}{}:
				case <-asking.Done():
					return
				}
				go func() {
					answer := Catch(func() (int, error) { return i, ask(asking, i) })
					if !errors.Is(answer.err, csiproxy.ErrUnavailable) {
						<-room
					}
					answers <- answer
				}()
			}
		}()
	}
	end := time.NewTimer(timeout)
	defer end.Stop()
	for range count {
		select {
		case answer := <-answers:
			if i, _ := answer.Get(); !yield(i) {
				return
			}
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// mostJoined is the maximum number of different errors in a joined error.
const mostJoined = 10

// join joins errors into a short text, however many there are: errors with equal text become one,
// with their number, and only the first few different errors are named.
func join(errs []error) error {
	count := make(map[string]int)
	var different []error
	for _, err := range errs {
		text := err.Error()
		if count[text]++; count[text] == 1 {
			different = append(different, err)
		}
	}
	var named []error
	for _, err := range different[:min(mostJoined, len(different))] {
		if n := count[err.Error()]; n > 1 {
			err = fmt.Errorf("%w (%d times)", err, n)
		}
		named = append(named, err)
	}
	others := 0
	for _, err := range different[len(named):] {
		others += count[err.Error()]
	}
	if others > 0 {
		named = append(named, fmt.Errorf("and %d errors more", others))
	}
	return errors.Join(named...)
}
