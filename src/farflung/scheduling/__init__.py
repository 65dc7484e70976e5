"""Which cluster is the best one for a group of virtual machines.  Pure: nothing here knows of a server, or of the time.

values       what is asked for, what there is, and what is decided
engine       decides, and keeps count of what is held; it remembers how good sites are for requests that are alike
  ranking      sites in the order in which they are good for requests that are alike
  judging      what the policy says of one site and one request
  policy       which filters and scorers have a say, from files in the format of the original
  filters      which sites will do, by what they are
  room         how many replicas a site has room for, and with which flavors
  scorers      how good a site is, 0 to 100 each
  strategies   how many replicas go where
  ledger       what is held of each site, and by whom
  explanation  decisions in words
queue        requests that wait, by priority and age
catalogue    flavors, from the files of the original
era          its files of sites
"""
