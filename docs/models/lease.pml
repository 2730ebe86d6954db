/* The lease protocol: claim, renew, recover, settle, cancel, and a lossy failover of the database.
 *
 * One task is enough: every guard is per task. Each atomic step is one committed statement; whatever
 * lies between two steps may take for ever, so every pause, zombie and late reply is among the
 * histories. Time is one bit: a lease may lapse at any moment, which covers every clock.
 *
 * GUARD says what a worker's write must match on the lease row:
 *   3  the grant, pure chance for each claim call: what Holdfast does
 *   2  the fence, a counter in the database       1  the worker's name       0  that there is a lease
 * FAILOVER 0: the database never loses what it said; then there is also a cancel and a hand-back.
 * BLIND 1: recovery does not look again whether the lease has still lapsed.
 * LOOSE 1: "was it written before?" also takes the rows that recovery wrote.
 * Each of these has a counter-example; ours has none (tests/test_model.py).
 */
#ifndef GUARD
#define GUARD 3
#endif
#ifndef FAILOVER
#define FAILOVER 1
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef BLIND
#define BLIND 0
#endif
#ifndef LOOSE
#define LOOSE 0
#endif

#define MAX_TRIES 2

mtype = { ready, leased, ended };
mtype = { done, retry, handed_back, cancelled, lost };
mtype = { holder, recovery };

/* What the database knows. A failover puts an older copy in its place. */
typedef Database {
  mtype place;
  byte grant;            /* on the lease row */
  byte fence;            /* carried through ready and lease */
  byte name;             /* of the worker on the lease row */
  byte tries;            /* charged at the grant */
  bool alone;            /* its one try in company was given back */
  bool lapsed;
  bool cancel;           /* asked for */
  bool withdrawn;        /* the caller heard "cancelled" */
  short by_holder;       /* one bit per grant: attempts that their holder ended */
  short by_recovery;
  /* only counted, to be judged */
  byte truly;            /* the process that really holds it */
  byte paid;             /* grants, less hand-backs */
  byte handed;
  byte ends
};
Database db, standby, nothing;
byte issued = 0;         /* grants are made by clients: no failover takes one back */
bool calm = false;       /* there was a failover, or there will be none */

#define OVER (db.place == ended && calm)

#if GUARD == 3
#define HELD (db.place == leased && db.grant == grant)
#elif GUARD == 2
#define HELD (db.place == leased && db.fence == fence)
#elif GUARD == 1
#define HELD (db.place == leased && db.name == name)
#else
#define HELD (db.place == leased)
#endif

inline claim() {
  db.place = leased;
  issued++;
  grant = issued;
  db.grant = grant;
  db.fence++;
  fence = (GUARD == 2 -> db.fence : 0);
  db.name = name;
  db.truly = _pid;
  db.tries++;
  db.paid++;
  db.lapsed = false;
  assert(!db.withdrawn);                          /* answered cancelled: it never starts */
  assert(db.tries <= MAX_TRIES);
  assert(db.paid <= MAX_TRIES + 1)
}

/* What follows from a verdict: the same door for the holder and for recovery. */
inline follow(verdict, refund, by) {
  if
  :: by == holder -> db.by_holder = db.by_holder | (1 << db.grant)
  :: else -> db.by_recovery = db.by_recovery | (1 << db.grant)
  fi;
  if
  :: verdict == done || verdict == cancelled || db.cancel || (!refund && db.tries >= MAX_TRIES) ->
     db.place = ended;
     db.ends++;
     assert(db.ends == 1)                         /* one outcome */
  :: else ->
     db.place = ready;
     db.tries = db.tries - (refund -> 1 : 0);
     if
     :: verdict == handed_back -> db.handed++; db.paid--
     :: verdict == lost && refund -> db.alone = true
     :: else -> skip
     fi
  fi;
  db.grant = 0;
  db.name = 0;
  db.truly = 0;
  db.lapsed = false
}

proctype Worker(byte name) {
  byte grant, fence;
  bool told, wrote, heard;
  mtype verdict;
  do
  :: OVER -> break
  :: atomic {
       db.place == ready -> claim(); told = db.cancel; wrote = false
     }
     if
     :: told -> verdict = cancelled               /* never started */
     :: !told ->
        do
        :: atomic {                               /* renew; a bad worker goes on when refused */
             if
             :: HELD -> assert(db.truly == _pid && db.grant == grant); db.lapsed = false
             :: else -> skip
             fi
           }
        :: verdict = done; break
        :: verdict = retry; break
        :: !FAILOVER && db.handed == 0 -> verdict = handed_back; break
        :: verdict = 0; break                     /* crash: it forgets everything */
        od
     fi;
     heard = (verdict == 0);
     do
     :: heard -> break
     :: !heard ->
        atomic {
          if
          :: HELD ->
             assert(db.truly == _pid && db.grant == grant);   /* only the holder's write is taken */
             follow(verdict, (verdict == handed_back), holder);
             wrote = true;
             if
             :: heard = true
             :: skip                              /* the reply is lost: it asks again */
             fi
          :: else ->
             /* Written before, by this very lease? Then it was accepted; else it is refused. */
             if
             :: (db.by_holder >> grant) & 1 || (LOOSE && ((db.by_recovery >> grant) & 1)) ->
                assert(wrote)
             :: else -> skip
             fi;
             heard = true
          fi
        }
     od;
     atomic { grant = 0; fence = 0; told = false; wrote = false; heard = false; verdict = 0 }
  od
}

proctype Recovery() {
  byte grant;
  bool refund;
  do
  :: OVER -> break
  :: atomic {
       db.place == leased && db.lapsed -> grant = db.grant;
       if
       :: !db.alone -> refund = true              /* lost in company */
       :: refund = false
       fi
     }
     atomic {
       if
       :: db.place == leased && db.grant == grant && (BLIND || db.lapsed) ->
          assert(db.lapsed);                      /* whoever renewed in time keeps its lease */
          follow(lost, refund, recovery)
       :: else -> skip
       fi;
       grant = 0;
       refund = false
     }
  od
}

proctype Time() {
  do
  :: OVER -> break
  :: atomic { db.place == leased && !db.lapsed -> db.lapsed = true }
  od
}

/* Two commits: the request, then the withdrawal of what nobody holds. */
proctype Canceller() {
  if
  :: atomic { db.place != ended -> db.cancel = true };
     atomic {
       if
       :: db.place == ready && db.cancel ->
          db.place = ended;
          db.ends++;
          assert(db.ends == 1);
          db.withdrawn = true
       :: else -> skip                            /* answered requested, or ended */
       fi
     }
  :: skip
  fi
}

inline copy(from, to) {
  to.place = from.place; to.grant = from.grant; to.fence = from.fence; to.name = from.name;
  to.tries = from.tries; to.alone = from.alone; to.lapsed = from.lapsed; to.cancel = from.cancel;
  to.withdrawn = from.withdrawn; to.by_holder = from.by_holder; to.by_recovery = from.by_recovery;
  to.truly = from.truly; to.paid = from.paid; to.handed = from.handed; to.ends = from.ends
}

/* The standby has what was sent until some moment; later it takes over. */
proctype Failover() {
  if
  :: atomic { copy(db, standby) };
     atomic { copy(standby, db); copy(nothing, standby); calm = true }
  :: calm = true
  fi
}

init {
  atomic {
    db.place = ready;
    run Worker(1);
    run Worker(1);                                /* two containers, both "pid 1" */
#if WORKERS > 2
    run Worker(2);
#endif
    run Recovery();
    run Time();
#if FAILOVER
    run Failover()
#else
    run Canceller();
    calm = true
#endif
  }
}
