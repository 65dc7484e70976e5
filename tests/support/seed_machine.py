"""The virtual machine that users of the global scheduler know, as it was always written."""

MACHINE = """\
apiVersion: v1
kind: Pod
metadata:
  name: demovm
spec:
  virtualMachine:
    keyPairName: "foobar"
    name: vm001
    image: download.cirros-cloud.net/0.3.5/cirros-0.3.5-x86_64-disk.img
    imagePullPolicy: IfNotPresent
    needEIP: true
    flavors:
      - flavorID: "c6.large.2"
    resourceCommonInfo:
      selector:
        regions:
          - region: "region1"
        strategy:
          localStrategy: "centralize"
"""
