"""The scheduling engine for virtual machines.  Pure: no server and no clock.

values       requests, sites and decisions
engine       decides, and keeps reservations
  ranking      the order of sites for one shape of requests
  evaluation   refusal or score of one site for one request
  policy       active filters and scorers, from policy files
  plugins      filters and scorers
  fit          how many replicas fit on a site, and with which flavors
  strategies   distribution of replicas over sites
  sites        reservations, free capacity and an index of sites
  claims       the resources of a stack
queue        waiting requests by priority and age
"""
